// RUN: xdsl-opt %s -p pebble-flatten-network --split-input-file | filecheck %s

// A weight that only the call knows is no connection.
// CHECK-LABEL: @dynamic_weight
func.func @dynamic_weight(%x: tensor<?x2xf32>, %w: tensor<2x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: pebble.linear
  %y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Without a layer there is nothing to schedule.
// CHECK-LABEL: @no_layer
func.func @no_layer(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: pebble.activate
  %y = pebble.activate <relu> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A product of two values, and one with a number that is not finite, stay as they are.
// CHECK-LABEL: @products
func.func @products(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  %c = pebble.constant dense<"0x0000803F0000807F"> : tensor<2xf32>
  // CHECK: %h = pebble.network %x
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %p = pebble.mul %h, %x
  %p = pebble.mul %h, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.mul %p, %c
  %y = pebble.mul %p, %c : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A transpose of rows moves what the neurons of another sample hold.
// CHECK-LABEL: @rows_move
func.func @rows_move(%x: tensor<?x3x2xf32>) -> tensor<3x?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  // CHECK: %h = pebble.network %x
  %h = pebble.linear %x, %w : (tensor<?x3x2xf32>, tensor<2x2xf32>) -> tensor<?x3x2xf32>
  // CHECK-NEXT: %t = pebble.transpose %h
  %t = pebble.transpose %h axes [1, 0, 2] : (tensor<?x3x2xf32>) -> tensor<3x?x2xf32>
  // CHECK-NEXT: %y = pebble.network %t
  %y = pebble.linear %t, %w : (tensor<3x?x2xf32>, tensor<2x2xf32>) -> tensor<3x?x2xf32>
  func.return %y : tensor<3x?x2xf32>
}
