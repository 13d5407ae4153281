// RUN: xdsl-opt %s -p 'pebble-form-image-networks{threads=2}' | filecheck %s

// CHECK: pebble.image_network %x threads 2 predicted_us {{.*}} : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
// CHECK-NEXT: ^bb0([[A:%.*]]: tensor<?x2x4x4xf32>):
// CHECK-NEXT: pebble.conv2d [[A]], %w window
// CHECK-NEXT: [[G:%.*]] = pebble.activate <gelu>
// CHECK-NEXT: pebble.yield [[G]]
func.func @main(%x: tensor<?x2x4x4xf32>) -> tensor<?x32xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %h = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %g = pebble.activate <gelu> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: pebble.reshape
  %y = pebble.reshape %g to <[d0, _]> : (tensor<?x2x4x4xf32>) -> tensor<?x32xf32>
  func.return %y : tensor<?x32xf32>
}
