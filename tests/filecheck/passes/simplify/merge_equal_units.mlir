// RUN: xdsl-opt %s -p pebble-merge-equal-units --split-input-file | filecheck %s

// Neurons 0 and 2 are equal; 1 has another weight, 3 another bias.
// CHECK-LABEL: @merged
func.func @merged(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %w = pebble.constant dense<[[1.0, 1.0, 1.0, 1.0], [2.0, 3.0, 2.0, 2.0]]> : tensor<2x4xf32>
  %b = pebble.constant dense<[5.0, 5.0, 5.0, 6.0]> : tensor<4xf32>
  %v = pebble.constant dense<[[1.0], [10.0], [100.0], [1000.0]]> : tensor<4x1xf32>
  // CHECK: %w = pebble.constant dense<{{.}}[1.000000e+00, 1.000000e+00, 1.000000e+00], [2.000000e+00, 3.000000e+00, 2.000000e+00]]>
  // CHECK: %b = pebble.constant dense<[5.000000e+00, 5.000000e+00, 6.000000e+00]>
  // CHECK: -> tensor<?x3xf32>
  %h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x2xf32>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  // CHECK: %v = pebble.constant dense<{{.}}[1.010000e+02], [1.000000e+01], [1.000000e+03]]>
  %y = pebble.linear %h, %v : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

// A merge in the first layer makes both neurons of the second equal: 1 + 2 = 2 + 1.
// CHECK-LABEL: @again
func.func @again(%x: tensor<?x1xf32>) -> tensor<?x1xf32> {
  %u = pebble.constant dense<[[1.0, 1.0]]> : tensor<1x2xf32>
  %w = pebble.sparse_constant pointers dense<[0, 2, 4]> : tensor<3xi64> rows dense<[0, 1, 0, 1]> : tensor<4xi64> values dense<[1.0, 2.0, 2.0, 1.0]> : tensor<4xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>
  %v = pebble.constant dense<[[1.0], [1.0]]> : tensor<2x1xf32>
  // CHECK: pebble.linear {{.*}} -> tensor<?x1xf32>
  %g = pebble.linear %x, %u : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.sparse_constant pointers dense<[0, 1]> : tensor<2xi64> rows dense<0> : tensor<1xi64> values dense<3.000000e+00>
  // CHECK-NEXT: pebble.linear {{.*}} -> tensor<?x1xf32>
  %h = pebble.linear %g, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>) -> tensor<?x2xf32>
  // CHECK: dense<2.000000e+00> : tensor<1x1xf32>
  %y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

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
