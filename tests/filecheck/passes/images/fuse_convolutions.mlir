// RUN: xdsl-opt %s -p pebble-fuse-convolutions --split-input-file | filecheck %s

// A batch norm, a sum with an earlier value, an activation.
// CHECK-LABEL: @all
func.func @all(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %one = pebble.constant dense<1.0> : tensor<2xf32>
  %two = pebble.constant dense<2.0> : tensor<2xf32>
  %h = pebble.conv2d %x, %w bias %one : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> {pebble.node = "c", pebble.values = ["h"]} : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %n = pebble.batch_norm %h scale %two bias %one mean %one variance %one epsilon 0.0 : (tensor<?x2x4x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  %s = pebble.add %n, %x : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: [[W:%.*]] = pebble.constant dense<{{.}}[2.000000e+00, 0.000000e+00], [0.000000e+00, 6.000000e+00]]>
  // CHECK: [[B:%.*]] = pebble.constant dense<1.000000e+00> : tensor<2xf32>
  // CHECK: %y = pebble.conv2d %x, [[W]] bias [[B]] : tensor<2xf32> residual %x : tensor<?x2x4x4xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> {pebble.node = "c", pebble.values = ["y"]}
  // CHECK-NEXT: func.return %y
  %y = pebble.activate <relu> %s {pebble.values = ["y"]} : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// CHECK-LABEL: @depthwise
func.func @depthwise(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<9x2xf32>
  %h = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x2x4x4xf32>, tensor<9x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> activation <relu>
  // CHECK-NEXT: func.return
  %y = pebble.activate <relu> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// What an affine block of two numbers computes is part of the activation before it.
// CHECK-LABEL: @block
func.func @block(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<9x2xf32>
  %c = pebble.constant dense<3.0> : tensor<1xf32>
  %d = pebble.constant dense<-2.0> : tensor<1xf32>
  %h = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x2x4x4xf32>, tensor<9x2xf32>) -> tensor<?x2x4x4xf32>
  %a = pebble.activate <hard_swish> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %m = pebble.mul %c, %a : (tensor<1xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %s = pebble.sub %m, %d : (tensor<?x2x4x4xf32>, tensor<1xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: [[Y:%.*]] = pebble.depthwise2d %x, %w window <[3, 3] {{.*}}> activation <scaled_hard_swish(-6.0, -4.0)>
  // CHECK-NEXT: func.return [[Y]]
  %y = pebble.mul %s, %d : (tensor<?x2x4x4xf32>, tensor<1xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// A number for each channel, or one that is too large together with another, is no part of an activation.
// CHECK-LABEL: @no_block
func.func @no_block(%x: tensor<?x2x4x4xf32>) -> (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<9x2xf32>
  %c = pebble.constant dense<[[[3.0]], [[4.0]]]> : tensor<2x1x1xf32>
  %d = pebble.constant dense<1.0e+30> : tensor<1xf32>
  // CHECK: activation <relu>
  // CHECK: activation <scaled_relu(
  // CHECK-NEXT: pebble.mul
  // CHECK-NEXT: pebble.mul
  %h = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> activation <relu> : (tensor<?x2x4x4xf32>, tensor<9x2xf32>) -> tensor<?x2x4x4xf32>
  %i = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> activation <relu> : (tensor<?x2x4x4xf32>, tensor<9x2xf32>) -> tensor<?x2x4x4xf32>
  %m = pebble.mul %h, %c : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  %j = pebble.mul %i, %d : (tensor<?x2x4x4xf32>, tensor<1xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.mul %j, %d : (tensor<?x2x4x4xf32>, tensor<1xf32>) -> tensor<?x2x4x4xf32>
  func.return %m, %y : tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>
}

// -----

// A constant of each channel is part of the bias, even behind a residual; one that scales goes into the weight.
// CHECK-LABEL: @constants
func.func @constants(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %c = pebble.constant dense<[[[3.0]], [[4.0]]]> : tensor<2x1x1xf32>
  // CHECK: [[W:%.*]] = pebble.constant dense<{{.}}[3.000000e+00, 0.000000e+00], [0.000000e+00, 1.200000e+01]]>
  // CHECK: [[B:%.*]] = pebble.constant dense<[3.000000e+00, 4.000000e+00]> : tensor<2xf32>
  // CHECK: [[Y:%.*]] = pebble.conv2d %x, [[W]] bias [[B]] : tensor<2xf32> residual %x : tensor<?x2x4x4xf32> window <[1, 1] {{.*}}> :
  // CHECK-NEXT: func.return [[Y]]
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %m = pebble.mul %c, %h : (tensor<2x1x1xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %s = pebble.add %m, %x : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.add %s, %c : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// What stands behind channels that become pixels is done before: there each channel has its constant as often as parts.
// CHECK-LABEL: @pixels
func.func @pixels(%x: tensor<?x2x4x4xf32>) -> tensor<?x1x8x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %c = pebble.constant dense<3.0> : tensor<1x1x1xf32>
  // CHECK: [[B:%.*]] = pebble.constant dense<3.000000e+00> : tensor<2xf32>
  // CHECK: [[H:%.*]] = pebble.conv2d %x, %w bias [[B]] : tensor<2xf32> window <[1, 1] {{.*}}> activation <relu>
  // CHECK-NEXT: [[Y:%.*]] = pebble.interleave2d [[H]] by [2 : i64, 1 : i64] together false
  // CHECK-NEXT: func.return [[Y]]
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %p = pebble.interleave2d %h by [2, 1] together false : (tensor<?x2x4x4xf32>) -> tensor<?x1x8x4xf32>
  %s = pebble.add %p, %c : (tensor<?x1x8x4xf32>, tensor<1x1x1xf32>) -> tensor<?x1x8x4xf32>
  %y = pebble.activate <relu> %s : (tensor<?x1x8x4xf32>) -> tensor<?x1x8x4xf32>
  func.return %y : tensor<?x1x8x4xf32>
}
