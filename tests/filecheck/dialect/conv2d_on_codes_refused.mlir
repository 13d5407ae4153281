// RUN: xdsl-opt %s --split-input-file --verify-diagnostics | filecheck %s

func.func @inputs(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<3x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected a weight of 2 inputs, got 3x2
  %y_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.conv2d %y_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

func.func @integers(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<0.5> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: weights are no integers from -255 to 255
  %y_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.conv2d %y_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

func.func @dynamic(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected a result of floats for an input of floats, got codes
  %y_c = pebble.conv2d %x, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 0>>
  %y = pebble.convert %y_c : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 0>>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

func.func @size(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x3x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected result ?x2x4x4, got ?x2x3x4
  %y_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.conv2d %y_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x3x4xf32>
  func.return %y : tensor<?x2x3x4xf32>
}

// -----

func.func @multiplier(%q: tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: expected a multiplier `times` of sums of codes alone
  %y = pebble.conv2d %q, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return
}

// -----

func.func @residual(%q: tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, %r: tensor<?x2x4x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %m = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected a residual of a convolution of floats, got one of codes
  %y = pebble.conv2d %q, %w residual %r : tensor<?x2x4x4xf32> times %m : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return
}

// -----

func.func @precision(%x: tensor<?x2x4x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: expected precision bf16 or u8, got 'f16'
  %y = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "f16" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return
}

// -----

func.func @mean(%q: tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>) {
  // CHECK: expected the largest of codes, which are codes of the same scale and zero
  %y = pebble.pool2d "average" %q window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>) -> tensor<?x2x2x2x!pebble.codes<u8 scale 0.5 zero 128>>
  func.return
}
