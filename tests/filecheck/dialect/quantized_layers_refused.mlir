// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: 2 parameters, expected three for each of 1 nodes
  %y = pebble.quantized_layers %x, %w, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: 3 codes, expected 1 or 2
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: input 3, expected rank 2 or more and a known last axis
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: weight 2x2 does not fit 3 inputs
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0, 0.0]> : tensor<3xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: bias 3, expected 2
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<3xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 256.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: weights are no integers from -255 to 255
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 0.5], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: weights are no integers from -255 to 255
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 16777218.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: biases are no integers from -16777216 to 16777216
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: result ?x3, expected ?x2
  %y = pebble.quantized_layers %x, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>, %w: tensor<3x2xf32>, %b: tensor<2xf32>) {
  // CHECK: weights are no constant
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected dynamic codes of one layer that is not rounded, got several
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<dynamic>, #pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected codes u8, s8 or dynamic, got i4
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<i4 scale 0.5 zero 1>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xsi8>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: input of s8 bytes, its codes are u8
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 1>] activations [unit] nodes ["fc"] : (tensor<?x3xsi8>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: result of u8 bytes, its codes are none
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 1>] activations [unit] nodes ["fc"] : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xui8>
  func.return
}
