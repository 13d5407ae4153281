// RUN: xdsl-opt %s -p pebble-reorder-channels | filecheck %s

// Connections are even; in the second function a result has the channels.
// CHECK-LABEL: @even
func.func @even(%x: tensor<?x1x4x4xf32>) -> tensor<?x2x4x4xf32> {
  // CHECK-NEXT: dense<{{.}}[1.000000e+00, 2.000000e+00]]>
  // CHECK-NEXT: dense<{{.}}[0.000000e+00, 1.000000e+00], [1.000000e+00, 1.000000e+00]]>
  %w = pebble.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[0.0, 1.0], [1.0, 1.0]]> : tensor<2x2xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %h, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// CHECK-LABEL: @read_by_others
func.func @read_by_others(%x: tensor<?x1x4x4xf32>) -> (tensor<?x3x4x4xf32>, tensor<?x12x4x4xf32>) {
  // CHECK-NEXT: dense<{{.}}[1.000000e+00, 2.000000e+00, 3.000000e+00]]>
  %w = pebble.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %v = pebble.constant dense<[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]]> : tensor<3x12xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x3xf32>) -> tensor<?x3x4x4xf32>
  %y = pebble.conv2d %h, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4xf32>, tensor<3x12xf32>) -> tensor<?x12x4x4xf32>
  func.return %h, %y : tensor<?x3x4x4xf32>, tensor<?x12x4x4xf32>
}
