// RUN: xdsl-opt %s -p pebble-take-bytes --split-input-file | filecheck %s

// What codes become is read as floats, too; what is dequantized by another zero is other floats.
// CHECK-LABEL: @read_twice
// CHECK-SAME: (%x: !pebble.value<"tensor(uint8)">)
func.func @read_twice(%x: !pebble.value<"tensor(uint8)">) -> (!pebble.value<"tensor(uint8)">, tensor<?x2xf32>) {
  // CHECK: pebble.foreign "ai.onnx::DequantizeLinear"
  %f = pebble.foreign "ai.onnx::DequantizeLinear" at 0 reads %x as ["x"] {pebble.codes = !pebble.codes<u8 scale 0.5 zero 127>} : (!pebble.value<"tensor(uint8)">) -> tensor<?x2xf32>
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %y_q = pebble.convert %f
  %y_q = pebble.convert %f : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 1>>
  %y = pebble.convert %y_0 : (tensor<?x2x!pebble.codes<u8 scale 0.25 zero 1>>) -> tensor<?x2xf32>
  // CHECK: pebble.foreign "ai.onnx::QuantizeLinear"
  %q = pebble.foreign "ai.onnx::QuantizeLinear" at 1 reads %y as ["y"] {pebble.codes = !pebble.codes<u8 scale 0.25 zero 1>} : (tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)">
  func.return %q, %y : !pebble.value<"tensor(uint8)">, tensor<?x2xf32>
}

// -----

// A division by the scale comes before the rounding.
// CHECK-LABEL: @divided
func.func @divided(%x: tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)"> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %y = pebble.linear %y_q, {{.*}} -> tensor<?x2xf32>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.foreign "ai.onnx::QuantizeLinear"
  %q = pebble.foreign "ai.onnx::QuantizeLinear" at 1 reads %y as ["y"] {pebble.codes = !pebble.codes<u8 scale 0.25 zero 7>} : (tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)">
  func.return %q : !pebble.value<"tensor(uint8)">
}
