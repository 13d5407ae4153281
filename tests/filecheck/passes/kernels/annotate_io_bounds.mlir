// RUN: xdsl-opt %s -p pebble-annotate-io-bounds --split-input-file | filecheck %s

// W = 3 connections, of 4 inputs 2 move, 2 outputs: reads from 3 + 4 to 6 + 2, writes 2.
// CHECK-LABEL: @constant
func.func @constant(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 3.0]]> : tensor<4x2xf32>
  // CHECK: %y = pebble.linear %x, %w io_bounds <reads = 7 to 8, writes = 2 to 2>
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A weight that only the call knows has no pattern.
// CHECK-LABEL: @dynamic
func.func @dynamic(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) -> tensor<?x2xf32> {
  // CHECK: %y = pebble.linear %x, %w :
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A convolution is a linear layer over pixels. W = 4 connections of one pixel, 3 of the 8 values of its window move, 2
// channels: reads from 4 + 5 to 8 + 2, writes 2.
// CHECK-LABEL: @convolution
func.func @convolution(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x3x3xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [2.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 5.0], [0.0, 0.0]]> : tensor<8x2xf32>
  // CHECK: pebble.conv2d {{.*}} io_bounds <reads = 9 to 10, writes = 2 to 2>
  %y = pebble.conv2d %x, %w window <[2, 2] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<8x2xf32>) -> tensor<?x2x3x3xf32>
  func.return %y : tensor<?x2x3x3xf32>
}
