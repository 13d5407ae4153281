// RUN: xdsl-opt %s -p pebble-fuse-layers --split-input-file | filecheck %s

// Something else reads the layer.
// CHECK-LABEL: @two_readers
func.func @two_readers(%x: tensor<?x1xf32>) -> (tensor<?x1xf32>, tensor<?x1xf32>) {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.activate <relu> %h
  %y = pebble.activate <relu> %h : (tensor<?x1xf32>) -> tensor<?x1xf32>
  func.return %h, %y : tensor<?x1xf32>, tensor<?x1xf32>
}

// -----

// What comes behind an activation is no part of the product.
// CHECK-LABEL: @behind_activation
func.func @behind_activation(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %h = pebble.linear %x, %w activation <relu> : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.add %h, %w
  %y = pebble.add %h, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// The weight would overflow.
// CHECK-LABEL: @overflow
func.func @overflow(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<1.0e30> : tensor<1x1xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.mul %h, %w
  %y = pebble.mul %h, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// The quotient by zero is no finite scale.
// CHECK-LABEL: @division_by_zero
func.func @division_by_zero(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<1.0> : tensor<1x1xf32>
  %zero = pebble.constant dense<0.0> : tensor<f32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  // CHECK: pebble.div %h, %zero
  %y = pebble.div %h, %zero : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// A large shift in front would cancel against the input: (x - 1000) w is not x w - 1000 w in single precision.
// CHECK-LABEL: @large_shift
func.func @large_shift(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %mean = pebble.constant dense<1000.0> : tensor<1xf32>
  // CHECK: pebble.sub %x, %mean
  %h = pebble.sub %x, %mean : (tensor<?x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %y = pebble.linear %h, %w : (tensor<?x1xf32>, tensor<1x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// A constant that differs from row to row is no bias.
// CHECK-LABEL: @row_constant
func.func @row_constant(%x: tensor<2x1xf32>) -> tensor<2x1xf32> {
  %w = pebble.constant dense<2.0> : tensor<1x1xf32>
  %rows = pebble.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
  %h = pebble.linear %x, %w : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
  // CHECK: pebble.add %h, %rows
  %y = pebble.add %h, %rows : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  func.return %y : tensor<2x1xf32>
}
