// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @main(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, -255.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: pebble.quantized_conv2d %x, %w, %b, %b codes <u8 scale 0.5 zero 128> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> output <s8 scale 0.25 zero -3> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  %h = pebble.quantized_conv2d %x, %w, %b, %b codes <u8 scale 0.5 zero 128> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> output <s8 scale 0.25 zero -3> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: pebble.quantized_conv2d %{{.*}}, %w, %b, %b codes <dynamic> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (
  %y = pebble.quantized_conv2d %h, %w, %b, %b codes <dynamic> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}
