// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x4x8x8xf32>, %r: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<36x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  %d = pebble.constant dense<1.0> : tensor<9x4xf32>
  // CHECK: pebble.conv2d %x, %w window <[3, 3] strides [2, 2] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<36x2xf32>) -> tensor<?x2x4x4xf32>
  %plain = pebble.conv2d %x, %w window <[3, 3] strides [2, 2] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<36x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: pebble.conv2d %x, %w bias %b : tensor<2xf32> residual %r : tensor<?x2x4x4xf32> window <[3, 3] strides [2, 2] dilations [1, 1] pads [1, 1, 1, 1]> activation <relu> dense_us 1.000000e+00 : (
  // GENERIC: operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>
  %whole = pebble.conv2d %x, %w bias %b : tensor<2xf32> residual %r : tensor<?x2x4x4xf32> window <[3, 3] strides [2, 2] dilations [1, 1] pads [1, 1, 1, 1]> activation <relu> dense_us 1.0 : (tensor<?x4x8x8xf32>, tensor<36x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: pebble.depthwise2d %x, %d window <[3, 3] strides [1, 1] dilations [2, 2] pads [2, 2, 2, 2]> : (
  %each = pebble.depthwise2d %x, %d window <[3, 3] strides [1, 1] dilations [2, 2] pads [2, 2, 2, 2]> : (tensor<?x4x8x8xf32>, tensor<9x4xf32>) -> tensor<?x4x8x8xf32>
  // CHECK-NEXT: pebble.pool2d "max" %{{.*}} window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (
  %most = pebble.pool2d "max" %each window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x4x4xf32>
  // CHECK-NEXT: pebble.resample2d %{{.*}} rows <[0, 0, 1, -1]> columns <[0, 0, 3] to [1, 1, 3] shares [0.0, 0.5, 0.0]> fill -1.000000e+00 : (tensor<?x4x4x4xf32>) -> tensor<?x4x4x3xf32>
  %large = pebble.resample2d %most rows <[0, 0, 1, -1]> columns <[0, 0, 3] to [1, 1, 3] shares [0.0, 0.5, 0.0]> fill -1.0 : (tensor<?x4x4x4xf32>) -> tensor<?x4x4x3xf32>
  // CHECK-NEXT: pebble.interleave2d %x by [2 : i64, 1 : i64] together true : (tensor<?x4x8x8xf32>) -> tensor<?x2x15x8xf32>
  %pixels = pebble.interleave2d %x by [2, 1] together true : (tensor<?x4x8x8xf32>) -> tensor<?x2x15x8xf32>
  // CHECK-NEXT: pebble.image_network %x threads 2 predicted_us 1.000000e+01 : (tensor<?x4x8x8xf32>) -> tensor<?x2x4x4xf32> {
  %y = pebble.image_network %x threads 2 predicted_us 10.0 : (tensor<?x4x8x8xf32>) -> tensor<?x2x4x4xf32> {
  ^bb0(%a: tensor<?x4x8x8xf32>):
    %h = pebble.conv2d %a, %w window <[3, 3] strides [2, 2] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<36x2xf32>) -> tensor<?x2x4x4xf32>
    pebble.yield %h : tensor<?x2x4x4xf32>
  }
  func.return %y : tensor<?x2x4x4xf32>
}
