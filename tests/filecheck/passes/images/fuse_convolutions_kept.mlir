// RUN: xdsl-opt %s -p pebble-fuse-convolutions --split-input-file | filecheck %s

// Something else reads the convolution.
// CHECK-LABEL: @two_readers
func.func @two_readers(%x: tensor<?x2x4x4xf32>, %w: tensor<2x2xf32>) -> (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) {
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: pebble.activate <relu> %h
  %y = pebble.activate <relu> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %h, %y : tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>
}

// -----

// The other value of a sum is not there yet: the later convolution takes the sum.
// CHECK-LABEL: @later
func.func @later(%x: tensor<?x2x4x4xf32>, %w: tensor<2x2xf32>) -> tensor<?x2x4x4xf32> {
  // CHECK: %a = pebble.conv2d %x, %w window
  %a = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: pebble.conv2d %x, %w residual %a
  %b = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.add %a, %b : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// The weight would overflow.
// CHECK-LABEL: @overflow
func.func @overflow(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32> {
  %w = pebble.constant dense<1.0e30> : tensor<1x1xf32>
  %p = pebble.constant dense<1.0e20> : tensor<1xf32>
  %one = pebble.constant dense<1.0> : tensor<1xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x1xf32>) -> tensor<?x1x4x4xf32>
  // CHECK: pebble.batch_norm %h
  %y = pebble.batch_norm %h scale %p bias %one mean %one variance %one epsilon 0.0 : (tensor<?x1x4x4xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x4x4xf32>
  func.return %y : tensor<?x1x4x4xf32>
}
