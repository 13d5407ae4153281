// RUN: xdsl-opt %s -p pebble-join-quantized-layers --split-input-file | filecheck %s

// An activation and another layer behind a layer; what is rounded at the end stays so.
// CHECK-LABEL: @chain
func.func @chain(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %h = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %r = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.quantized_layers %x, %w, %b, %b, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<s8 scale 0.25 zero 1>, #pebble.codes<u8 scale 2.0 zero 0>] activations [#pebble.activation<relu>, unit] nodes ["a", "b"]
  // CHECK-NEXT: func.return %y
  %y = pebble.quantized_layers %r, %w, %b, %b codes [#pebble.codes<s8 scale 0.25 zero 1>, #pebble.codes<u8 scale 2.0 zero 0>] activations [unit] nodes ["b"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// What is rounded behind an activation is a rounded layer.
// CHECK-LABEL: @rounded
func.func @rounded(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %h = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %r = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.25 zero 7>] activations [#pebble.activation<relu>] nodes ["a"]
  %y = pebble.activate <quantize(0.25, 7.0)> %r : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A layer whose codes are found at each call takes what is added, and then the activation.
// CHECK-LABEL: @added
func.func @added(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %z = pebble.constant dense<0.0> : tensor<2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %h = pebble.quantized_layers %x, %w, %z, %b codes [#pebble.codes<dynamic>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %a = pebble.add %h, %b : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.quantized_layers %x, %w, %{{[0-9]+}}, %b codes [#pebble.codes<dynamic>] activations [#pebble.activation<relu>] nodes ["a"]
  %y = pebble.activate <relu> %a : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A value is rounded to the same codes for each of its readers.
// CHECK-LABEL: @roundings
func.func @roundings(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: %a = pebble.activate <quantize(0.5, 3.0)> %x
  // CHECK-NEXT: pebble.add %a, %a
  %a = pebble.activate <quantize(0.5, 3.0)> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.activate <quantize(0.5, 3.0)> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = pebble.add %a, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
