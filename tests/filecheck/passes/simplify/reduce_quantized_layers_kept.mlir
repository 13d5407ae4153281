// RUN: xdsl-opt %s -p pebble-reduce-quantized-layers --split-input-file | filecheck %s

// Multipliers differ; what an activation rounds is no exact code; merged weights would pass 255.
// CHECK-LABEL: @multipliers
// CHECK: (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>
func.func @multipliers(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 1.0], [2.0, 2.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 4.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %y = pebble.quantized_layers %x, %w, %b, %m, %w, %b, %m codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.25 zero 3>] activations [unit, unit] nodes ["a", "b"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @activation
// CHECK: (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>
func.func @activation(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [2.0, 0.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %v = pebble.constant dense<[[1.0, 2.0], [2.0, 5.0]]> : tensor<2x2xf32>
  %y = pebble.quantized_layers %x, %w, %b, %b, %v, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.25 zero 3>] activations [#pebble.activation<tanh>, unit] nodes ["a", "b"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @large
// CHECK: (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>
func.func @large(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 1.0], [2.0, 2.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 4.0]> : tensor<2xf32>
  %v = pebble.constant dense<[[200.0, 2.0], [56.0, 5.0]]> : tensor<2x2xf32>
  %y = pebble.quantized_layers %x, %w, %b, %b, %v, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.25 zero 3>] activations [unit, unit] nodes ["a", "b"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
