// RUN: xdsl-opt %s -p pebble-merge-duplicate-channels --split-input-file | filecheck %s

// Channels 0 and 1 are equal, through a depthwise convolution: their rows are added tap by tap.
// CHECK-LABEL: @equal
func.func @equal(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x3xf32> {
  %w = pebble.constant dense<[[1.0, 1.0, 2.0]]> : tensor<1x3xf32>
  %b = pebble.constant dense<[3.0, 3.0, 3.0]> : tensor<3xf32>
  %d = pebble.constant dense<[[4.0, 4.0, 4.0]]> : tensor<1x3xf32>
  %v = pebble.constant dense<[[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]> : tensor<6x1xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<3xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x1x4x4xf32>, tensor<1x3xf32>) -> tensor<?x3x4x4xf32>
  // CHECK: pebble.depthwise2d {{.*}} -> tensor<?x2x4x4xf32>
  %g = pebble.depthwise2d %h, %d window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4xf32>, tensor<1x3xf32>) -> tensor<?x3x4x4xf32>
  // CHECK: dense<{{.}}[4.000000e+00], [6.000000e+00], [5.000000e+00], [6.000000e+00]]> : tensor<4x1xf32>
  %y = pebble.conv2d %g, %v window <[1, 2] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4xf32>, tensor<6x1xf32>) -> tensor<?x1x4x3xf32>
  func.return %y : tensor<?x1x4x3xf32>
}
