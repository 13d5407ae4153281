// RUN: xdsl-opt %s -p pebble-take-bytes --split-input-file | filecheck %s

// What codes become is read as floats, too; what is dequantized by another zero is other floats.
// CHECK-LABEL: @read_twice
// CHECK-SAME: (%x: !pebble.value<"tensor(uint8)">)
func.func @read_twice(%x: !pebble.value<"tensor(uint8)">) -> (!pebble.value<"tensor(uint8)">, tensor<?x2xf32>) {
  // CHECK: pebble.foreign "ai.onnx::DequantizeLinear"
  %f = pebble.foreign "ai.onnx::DequantizeLinear" at 0 reads %x as ["x"] {pebble.codes = #pebble.codes<u8 scale 0.5 zero 127>} : (!pebble.value<"tensor(uint8)">) -> tensor<?x2xf32>
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %y = pebble.quantized_layers %f
  %y = pebble.quantized_layers %f, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>, #pebble.codes<u8 scale 0.25 zero 1>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.foreign "ai.onnx::QuantizeLinear"
  %q = pebble.foreign "ai.onnx::QuantizeLinear" at 1 reads %y as ["y"] {pebble.codes = #pebble.codes<u8 scale 0.25 zero 1>} : (tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)">
  func.return %q, %y : !pebble.value<"tensor(uint8)">, tensor<?x2xf32>
}

// -----

// A division by the scale comes before the rounding.
// CHECK-LABEL: @divided
func.func @divided(%x: tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)"> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit]
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.foreign "ai.onnx::QuantizeLinear"
  %q = pebble.foreign "ai.onnx::QuantizeLinear" at 1 reads %y as ["y"] {pebble.codes = #pebble.codes<u8 scale 0.25 zero 7>} : (tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)">
  func.return %q : !pebble.value<"tensor(uint8)">
}
