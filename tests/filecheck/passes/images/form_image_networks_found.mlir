// RUN: xdsl-opt %s -p 'pebble-form-image-networks' | filecheck %s

// Codes that a call finds are those of all images: what reads them is a step behind what yields them.
// CHECK: [[H:%.*]] = pebble.image_network %x threads 1 predicted_us {{.*}} : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
// CHECK-NEXT: ^bb0([[A:%.*]]: tensor<?x2x4x4xf32>):
// CHECK-NEXT: [[C:%.*]] = pebble.conv2d [[A]], %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <{{.*}}> precision "u8"
// CHECK-NEXT: [[G:%.*]] = pebble.activate <gelu> [[C]]
// CHECK-NEXT: pebble.yield [[G]]
// CHECK: pebble.image_network [[H]], [[H]] threads 1 predicted_us {{.*}} : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
// CHECK-NEXT: ^bb0([[CODES:%.*]]: tensor<?x2x4x4xf32>, [[FLOATS:%.*]]: tensor<?x2x4x4xf32>):
// CHECK-NEXT: [[D:%.*]] = pebble.conv2d [[CODES]], %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <{{.*}}> precision "u8"
// CHECK-NEXT: [[S:%.*]] = pebble.add [[D]], [[FLOATS]]
// CHECK-NEXT: pebble.yield [[S]]
func.func @main(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %g = pebble.activate <gelu> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %i = pebble.conv2d %g, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.add %i, %g : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}
