// RUN: xdsl-opt %s -p pebble-drop-dead-units --split-input-file | filecheck %s

// Neuron 1 has no incoming connection: relu(3) * [4, 5] goes into the bias. Neuron 2 has no outgoing one.
// CHECK-LABEL: @both_kinds
func.func @both_kinds(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant {pebble.values = ["w"]} dense<[[1.0, 0.0, 7.0], [2.0, 0.0, 0.0]]> : tensor<2x3xf32>
  %b = pebble.constant dense<[9.0, 3.0, 8.0]> : tensor<3xf32>
  %v = pebble.constant dense<[[1.0, 2.0], [4.0, 5.0], [0.0, 0.0]]> : tensor<3x2xf32>
  // CHECK-NEXT: %w = pebble.constant {pebble.values = ["w"]} dense<{{.}}[1.000000e+00], [2.000000e+00]]> : tensor<2x1xf32>
  // CHECK-NEXT: %b = pebble.constant dense<9.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: [[H:%.*]] = pebble.linear %x, %w bias %b activation <relu> {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %h = pebble.linear %x, %w bias %b activation <relu> {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  // CHECK-NEXT: %v = pebble.constant dense<{{.}}[1.000000e+00, 2.000000e+00]]> : tensor<1x2xf32>
  // CHECK-NEXT: [[C:%.*]] = pebble.constant dense<[1.200000e+01, 1.500000e+01]> : tensor<2xf32>
  // CHECK-NEXT: %y = pebble.linear [[H]], %v bias [[C]]
  %y = pebble.linear %h, %v : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Through constants behind the layer, in sparse weights, back to the layer before: its neuron 1 is read by a dropped one only.
// CHECK-LABEL: @back
func.func @back(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %u = pebble.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[3.0, 4.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %v = pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<[0]> : tensor<1xi64> values dense<[5.0]> : tensor<1xf32> : tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>
  %slope = pebble.constant dense<[[0.5, 0.25]]> : tensor<1x2xf32>
  // CHECK: pebble.linear %x, {{.*}} -> tensor<?x1xf32>
  %g = pebble.linear %x, %u : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.linear {{.*}} (tensor<?x1xf32>, tensor<1x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  %h = pebble.linear %g, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
  // CHECK: [[SLOPE:%.*]] = pebble.constant dense<5.000000e-01> : tensor<1xf32>
  // CHECK-NEXT: pebble.prelu {{.*}}, [[SLOPE]] : (tensor<?x1xf32>, tensor<1xf32>) -> tensor<?x1xf32>
  %p = pebble.prelu %h, %slope : (tensor<?x2xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.linear {{.*}} (tensor<?x1xf32>, tensor<1x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  %y = pebble.linear %p, %v : (tensor<?x2xf32>, tensor<2x1xf32, #pebble.sparsity<nonzeros = 1>>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// Of a layer that is dead as a whole one neuron stays, and so do the model's inputs.
// CHECK-LABEL: @all_dead
func.func @all_dead(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<0.0> : tensor<2x3xf32>
  %v = pebble.constant dense<0.0> : tensor<3x1xf32>
  // CHECK: pebble.linear %x, {{.*}} (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  %h = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x3xf32>) -> tensor<?x3xf32>
  %y = pebble.linear %h, %v : (tensor<?x3xf32>, tensor<3x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

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
