// RUN: xdsl-opt %s -p pebble-drop-dead-channels --split-input-file | filecheck %s

// Channel 1 has no incoming connection: relu(3) * [4, 5] goes into the bias. Channel 2 has no outgoing one.
// CHECK-LABEL: @both_kinds
func.func @both_kinds(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0, 7.0], [2.0, 0.0, 0.0]]> : tensor<2x3xf32>
  %b = pebble.constant dense<[9.0, 3.0, 8.0]> : tensor<3xf32>
  %v = pebble.constant dense<[[1.0, 2.0], [4.0, 5.0], [0.0, 0.0]]> : tensor<3x2xf32>
  // CHECK-NEXT: %w = pebble.constant dense<{{.}}[1.000000e+00], [2.000000e+00]]> : tensor<2x1xf32>
  // CHECK-NEXT: %b = pebble.constant dense<9.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: %h = pebble.conv2d %x, %w bias %b : tensor<1xf32> window {{.*}} activation <relu> {{.*}} -> tensor<?x1x4x4xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<3xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x2x4x4xf32>, tensor<2x3xf32>) -> tensor<?x3x4x4xf32>
  // CHECK: [[C:%.*]] = pebble.constant dense<[1.200000e+01, 1.500000e+01]> : tensor<2xf32>
  // CHECK-NEXT: pebble.conv2d %h, %v bias [[C]]
  %y = pebble.conv2d %h, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4xf32>, tensor<3x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// Windows with pads: channel 0 is zero behind the relu, through a pooling, and goes with both of its rows.
// CHECK-LABEL: @zeros
func.func @zeros(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x2x3xf32> {
  %w = pebble.constant dense<[[0.0, 1.0]]> : tensor<1x2xf32>
  %b = pebble.constant dense<[-3.0, 0.5]> : tensor<2xf32>
  %v = pebble.constant dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>
  // CHECK: pebble.conv2d {{.*}} -> tensor<?x1x4x4xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: pebble.pool2d {{.*}} (tensor<?x1x4x4xf32>) -> tensor<?x1x2x2xf32>
  %p = pebble.pool2d "max" %h window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>) -> tensor<?x2x2x2xf32>
  // CHECK: dense<{{.}}[3.000000e+00], [4.000000e+00]]> : tensor<2x1xf32>
  %y = pebble.conv2d %p, %v window <[1, 2] strides [1, 1] dilations [1, 1] pads [0, 1, 0, 1]> : (tensor<?x2x2x2xf32>, tensor<4x1xf32>) -> tensor<?x1x2x3xf32>
  func.return %y : tensor<?x1x2x3xf32>
}

// -----

// Channel 1 is not read: its depthwise taps go, too.
// CHECK-LABEL: @depthwise
func.func @depthwise(%x: tensor<?x1x4x4xf32>) -> tensor<?x1x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %d = pebble.constant dense<[[3.0, 4.0]]> : tensor<1x2xf32>
  %v = pebble.constant dense<[[5.0], [0.0]]> : tensor<2x1xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: %d = pebble.constant dense<3.000000e+00> : tensor<1x1xf32>
  // CHECK: pebble.depthwise2d {{.*}} -> tensor<?x1x4x4xf32>
  %g = pebble.depthwise2d %h, %d window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<1x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %g, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x1xf32>) -> tensor<?x1x4x4xf32>
  func.return %y : tensor<?x1x4x4xf32>
}
