// RUN: xdsl-opt %s -p pebble-drop-dead-units --split-input-file | filecheck %s

// The hidden values are a result of the model.
// CHECK-LABEL: @returned
func.func @returned(%x: tensor<?x1xf32>) -> (tensor<?x2xf32>, tensor<?x1xf32>) {
  %w = pebble.constant dense<[[1.0, 0.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %h, %y : tensor<?x2xf32>, tensor<?x1xf32>
}

// -----

// A residual sum needs the width, and a softmax reads every neuron.
// CHECK-LABEL: @other_readers
func.func @other_readers(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [1.0, 0.0]]> : tensor<2x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %r = pebble.add %h, %x : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %k = pebble.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  %s = pebble.softmax %k : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %s, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// 0 * inf is NaN, so neuron 1 is not dead.
// CHECK-LABEL: @infinite
func.func @infinite(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<"0x0000803F0000807F"> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Neither is a neuron whose logarithm is -inf.
// CHECK-LABEL: @logarithm
func.func @logarithm(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0, 0.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[1.0], [0.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x2xf32>
  %h = pebble.linear %x, %w activation <log> : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// A constant channel that a window with pads reads is no constant at the border.
// CHECK-LABEL: @pads
func.func @pads(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x5xf32> {
  %w = pebble.constant dense<[[0.0, 1.0]]> : tensor<1x2xf32>
  %b = pebble.constant dense<[3.0, 0.5]> : tensor<2xf32>
  %v = pebble.constant dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %h, %v window <[1, 2] strides [1, 1] dilations [1, 1] pads [0, 1, 0, 1]> : (tensor<?x2x4x4xf32>, tensor<4x1xf32>) -> tensor<?x1x4x5xf32>
  func.return %y : tensor<?x1x4x5xf32>
}

// -----

// Somebody else reads the channels: a residual, the result of the function.
// CHECK-LABEL: @read
func.func @read(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [1.0, 0.0]]> : tensor<2x2xf32>
  // CHECK: %h = pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: %y = pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %x, %w residual %h : tensor<?x2x4x4xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// A channel that touches inf stays: what it holds may be NaN.
// CHECK-LABEL: @infinite
func.func @infinite(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32> {
  %w = pebble.constant dense<"0x0000807F0000803F"> : tensor<1x2xf32>
  %v = pebble.constant dense<[[0.0], [2.0]]> : tensor<2x1xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x2x4x4xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %h, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x1xf32>) -> tensor<?x1x4x4xf32>
  func.return %y : tensor<?x1x4x4xf32>
}
