// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4x?x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: image ?x4x?x8, expected rank 3 or 4 and known channels, height and width
  %y = pebble.conv2d %x, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x?x8xf32>, tensor<4x2xf32>) -> tensor<?x2x?x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: weight 4x2, expected 36 inputs
  %y = pebble.conv2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>, %b: tensor<3xf32>) {
  // CHECK: bias 3, expected 2
  %y = pebble.conv2d %x, %w bias %b : tensor<3xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: result ?x2x8x8, expected ?x2x4x4
  %y = pebble.conv2d %x, %w window <[1, 1] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x2xf32>) {
  // CHECK: residual ?x4x8x8, expected ?x2x8x8
  %y = pebble.conv2d %x, %w residual %x : tensor<?x4x8x8xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>, tensor<4x2xf32>) -> tensor<?x2x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>, %w: tensor<4x4xf32>) {
  // CHECK: weight 4x4, expected 9x4
  %y = pebble.depthwise2d %x, %w window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x4x8x8xf32>, tensor<4x4xf32>) -> tensor<?x4x8x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: pooling 'least', accepted are max, average, average_with_pads
  %y = pebble.pool2d "least" %x window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x4x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: pads [2, 0, 0, 0], expected fewer than taps
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
  // CHECK: 1 other rows and 1 shares for 2, expected none or as many
  %y = pebble.resample2d %x rows <[0, 1] to [1] shares [0.5]> columns <[7]> fill 0.0 : (tensor<?x4x2x8xf32>) -> tensor<?x4x2x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x2x8xf32>) {
  // CHECK: row -2, expected -1 or more
  %y = pebble.resample2d %x rows <[0, -2]> columns <[7]> fill 0.0 : (tensor<?x4x2x8xf32>) -> tensor<?x4x2x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4x8x8xf32>) {
  // CHECK: 0 threads, expected one or more
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
  // CHECK: codes of a value inside are found at each call, accepted are those of arguments
  %y = pebble.image_network %x threads 1 predicted_us 1.0 : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  ^bb0(%a: tensor<?x2x4x4xf32>):
    %r = pebble.activate <relu> %a : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
    %c = pebble.quantized_conv2d %r, %w, %b, %b codes <dynamic> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2x4x4xf32>
    pebble.yield %c : tensor<?x2x4x4xf32>
  }
  func.return
}
