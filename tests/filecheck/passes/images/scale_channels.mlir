// RUN: xdsl-opt %s -p pebble-scale-channels | filecheck %s

func.func @main(%x: tensor<?x2x8x8xf32>) -> (tensor<?x2x4x4xf32>, tensor<?x2x8x8xf32>) {
  %g = pebble.constant dense<[2.0, 3.0]> : tensor<2xf32>
  %d = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %v = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: [[W:%.*]] = pebble.constant dense<{{\[\[}}2.000000e+00, 3.000000e+00]]> : tensor<1x2xf32>
  // CHECK: pebble.depthwise2d %x, [[W]] bias %{{.*}} window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> :
  // CHECK-NOT: pebble.batch_norm
  // CHECK-NOT: pebble.activate
  %n = pebble.batch_norm %x scale %g bias %d mean %m variance %v epsilon 0.0 : (tensor<?x2x8x8xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x8x8xf32>
  %a = pebble.activate <relu> %n : (tensor<?x2x8x8xf32>) -> tensor<?x2x8x8xf32>
  %y = pebble.pool2d "max" %a window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x8x8xf32>) -> tensor<?x2x4x4xf32>
  func.return %y, %a : tensor<?x2x4x4xf32>, tensor<?x2x8x8xf32>
}
