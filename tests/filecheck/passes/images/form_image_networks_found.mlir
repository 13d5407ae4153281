// RUN: xdsl-opt %s -p 'pebble-form-image-networks' | filecheck %s

// Codes that a call finds are those of all images: what reads them is a step behind what yields them.
// CHECK: [[H:%.*]] = pebble.image_network %x threads 1 predicted_us {{.*}} : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
// CHECK-NEXT: ^bb0([[A:%.*]]: tensor<?x2x4x4xf32>):
// CHECK-NEXT: [[C:%.*]] = pebble.quantized_conv2d [[A]], %w, %b, %b codes <dynamic>
// CHECK-NEXT: [[G:%.*]] = pebble.activate <gelu> [[C]]
// CHECK-NEXT: pebble.yield [[G]]
// CHECK: pebble.image_network [[H]], [[H]] threads 1 predicted_us {{.*}} : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
// CHECK-NEXT: ^bb0([[CODES:%.*]]: tensor<?x2x4x4xf32>, [[FLOATS:%.*]]: tensor<?x2x4x4xf32>):
// CHECK-NEXT: [[D:%.*]] = pebble.quantized_conv2d [[CODES]], %w, %b, %b codes <dynamic>
// CHECK-NEXT: [[S:%.*]] = pebble.add [[D]], [[FLOATS]]
// CHECK-NEXT: pebble.yield [[S]]
func.func @main(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  %h = pebble.quantized_conv2d %x, %w, %b, %b codes <dynamic> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  %g = pebble.activate <gelu> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %i = pebble.quantized_conv2d %g, %w, %b, %b codes <dynamic> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.add %i, %g : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}
