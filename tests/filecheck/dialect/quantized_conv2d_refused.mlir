// RUN: xdsl-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @inputs(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<3x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: weight 3x2 does not fit 2 inputs
  %y = pebble.quantized_conv2d %x, %w, %b, %b codes <u8 scale 0.5 zero 128> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

func.func @integers(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<0.5> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: weights are no integers from -255 to 255
  %y = pebble.quantized_conv2d %x, %w, %b, %b codes <u8 scale 0.5 zero 128> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

func.func @dynamic(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected dynamic codes beside a result that is not rounded, got a rounded one
  %y = pebble.quantized_conv2d %x, %w, %b, %b codes <dynamic> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> output <u8 scale 0.5 zero 0> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

func.func @size(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x3x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected result ?x2x4x4, got ?x2x3x4
  %y = pebble.quantized_conv2d %x, %w, %b, %b codes <u8 scale 0.5 zero 128> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x3x4xf32>
  func.return %y : tensor<?x2x3x4xf32>
}
