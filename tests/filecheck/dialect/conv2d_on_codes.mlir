// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

func.func @main(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, -255.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>
  %h_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %h_c = pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>
  // CHECK-NEXT: pebble.pool2d "max" %h_c window <[2, 2] strides [1, 1] dilations [1, 1] pads [1, 0, 0, 1]> : (tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>) -> tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>
  %p = pebble.pool2d "max" %h_c window <[2, 2] strides [1, 1] dilations [1, 1] pads [1, 0, 0, 1]> : (tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>) -> tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>
  %h = pebble.convert %p : (tensor<?x2x4x4x!pebble.codes<s8 scale 0.25 zero -3>>) -> tensor<?x2x4x4xf32>
  // CHECK: pebble.conv2d %h, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.conv2d %h, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}
