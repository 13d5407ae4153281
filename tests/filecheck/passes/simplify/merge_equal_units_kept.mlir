// RUN: xdsl-opt %s -p pebble-merge-equal-units --split-input-file | filecheck %s

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

// -----

// The taps of a depthwise convolution tell channels 0 and 1 apart.
// CHECK-LABEL: @taps
func.func @taps(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 1.0]]> : tensor<1x2xf32>
  %d = pebble.constant dense<[[4.0, 5.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %g = pebble.depthwise2d %h, %d window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %g, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x1xf32>) -> tensor<?x1x4x4xf32>
  func.return %y : tensor<?x1x4x4xf32>
}

// -----

// The function returns them.
// CHECK-LABEL: @returned
func.func @returned(%x: tensor<?x1x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 1.0]]> : tensor<1x2xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %h : tensor<?x2x4x4xf32>
}

// -----

// The sum of the weights that read channels 0 and 1 is no number.
// CHECK-LABEL: @overflow
func.func @overflow(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 1.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[2.0e38], [2.0e38]]> : tensor<2x1xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %h, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x1xf32>) -> tensor<?x1x4x4xf32>
  func.return %y : tensor<?x1x4x4xf32>
}
