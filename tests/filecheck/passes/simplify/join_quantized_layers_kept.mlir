// RUN: xdsl-opt %s -p pebble-join-quantized-layers --split-input-file | filecheck %s

// The value between is read twice.
// CHECK-LABEL: @read_twice
func.func @read_twice(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.quantized_layers %x
  %h = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.quantized_layers %h
  %y = pebble.quantized_layers %h, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %h, %y : tensor<?x2xf32>, tensor<?x2xf32>
}

// -----

// What has been rounded is rounded once more, to other codes.
// CHECK-LABEL: @rounded
func.func @rounded(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.quantized_layers %x
  %h = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.5 zero 0>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.quantized_layers %h
  %y = pebble.quantized_layers %h, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A second activation.
// CHECK-LABEL: @activated_twice
func.func @activated_twice(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.quantized_layers %x
  %h = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [#pebble.activation<tanh>] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.activate <relu> %h
  %y = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Codes that are found at each call need all rows of the layer before.
// CHECK-LABEL: @found
func.func @found(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.quantized_layers %x
  %h = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<dynamic>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.quantized_layers %h
  %y = pebble.quantized_layers %h, %w, %b, %b codes [#pebble.codes<dynamic>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
