// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4x?x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected an image of rank 3 or 4 and known channels, height and width, got ?x4x?x8
  %y = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x?x8xf32>, tensor<4x2xf32>) -> tensor<?x2x?x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected a weight of 36 inputs, got 4x2
  %y = pebble.conv2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>, %b: tensor<3xf32>) {
  // CHECK: expected bias 2, got 3
  %y = pebble.conv2d %x, %w bias %b : tensor<3xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected result ?x2x4x4, got ?x2x8x8
  %y = pebble.conv2d %x, %w window <[1, 1] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected residual ?x2x8x8, got ?x4x8x8
  %y = pebble.conv2d %x, %w residual %x : tensor<?x4x8x8xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x4xf32>) {
  // CHECK: expected weight 9x4, got 4x4
  %y = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<4x4xf32>) -> tensor<?x4x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: expected a pooling max, average, average_with_pads, got 'least'
  %y = pebble.pool2d "least" %x window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x4x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: expected fewer pads than taps, got [2, 0, 0, 0]
  %y = pebble.pool2d "max" %x window <[2, 2] strides [2, 2] dilations [1, 1] pads [2, 0, 0, 0]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x2x8xf32>) {
  // CHECK: rows or columns that an image of 2x8 does not have
  %y = pebble.resample2d %x rows <[0, 2]> columns <[7]> fill 0.0 : (tensor<?x4x2x8xf32>) -> tensor<?x4x2x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x2x8xf32>) {
  // CHECK: expected no other rows and shares or 2, got 1 and 1
  %y = pebble.resample2d %x rows <[0, 1] to [1] shares [0.5]> columns <[7]> fill 0.0 : (tensor<?x4x2x8xf32>) -> tensor<?x4x2x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x2x8xf32>) {
  // CHECK: expected rows of -1 or more, got -2
  %y = pebble.resample2d %x rows <[0, -2]> columns <[7]> fill 0.0 : (tensor<?x4x2x8xf32>) -> tensor<?x4x2x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: expected one or more threads, got 0
  %y = pebble.image_network %x threads 0 predicted_us 1.0 : (tensor<?x4x8x8xf32>) -> tensor<?x4x8x8xf32> {
  ^bb0(%a: tensor<?x4x8x8xf32>):
    pebble.yield %a : tensor<?x4x8x8xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: argument 0 is ?x4x8x9 inside and ?x4x8x8 outside
  %y = pebble.image_network %x threads 1 predicted_us 1.0 : (tensor<?x4x8x8xf32>) -> tensor<?x4x8x9xf32> {
  ^bb0(%a: tensor<?x4x8x9xf32>):
    pebble.yield %a : tensor<?x4x8x9xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x2x4x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: expected codes of arguments to be found at each call, got those of a value inside
  %y = pebble.image_network %x threads 1 predicted_us 1.0 : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  ^bb0(%a: tensor<?x2x4x4xf32>):
    %r = pebble.activate <relu> %a : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
    %c = pebble.conv2d %r, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
    pebble.yield %c : tensor<?x2x4x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4x2x2xf32>) {
  // CHECK: expected at most 2 x 2 parts of 2x2, got [5, 4]
  %y = pebble.interleave2d %x by [2, 2] together false : (tensor<?x4x2x2xf32>) -> tensor<?x1x5x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x?xf32>, %w: tensor<8x2xf32>) {
  // CHECK: expected a window of one row and up to 128 taps, got #pebble.window<[2, 1]
  %y = pebble.conv2d %x, %w window <[2, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x?xf32>, tensor<8x2xf32>) -> tensor<?x2x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x?xf32>) {
  // CHECK: expected a mean without pads where the length is open, got one with pads
  %y = pebble.pool2d "average" %x window <[1, 3] strides [1, 1] dilations [1, 1] pads [0, 1, 0, 1]> : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  func.return
}
