// RUN: xdsl-opt %s -p pebble-merge-duplicate-neurons --split-input-file | filecheck %s

// Equal neurons of a result of the model stay.
// CHECK-LABEL: @returned
func.func @returned(%x: tensor<?x1xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<1x2xf32>
  // CHECK: pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// NaN is not equal to NaN.
// CHECK-LABEL: @nan
func.func @nan(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<"0x0000C07F0000C07F"> : tensor<1x2xf32>
  %v = pebble.constant dense<1.0> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// The sum of the outgoing weights would be infinite.
// CHECK-LABEL: @overflow
func.func @overflow(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<1.0> : tensor<1x2xf32>
  %v = pebble.constant dense<3.0e38> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
