// RUN: xdsl-opt %s -p pebble-take-bytes --split-input-file | filecheck %s

// Codes that a node makes floats of, and those that another one makes of the result.
// CHECK-LABEL: @both_ends
// CHECK-SAME: (%x: tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>) -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>
func.func @both_ends(%x: !pebble.value<"tensor(uint8)">) -> !pebble.value<"tensor(int8)"> {
  // CHECK-NOT: pebble.foreign
  %f = pebble.foreign "ai.onnx::DequantizeLinear" at 0 reads %x as ["x"] {pebble.codes = !pebble.codes<u8 scale 0.5 zero 128>} : (!pebble.value<"tensor(uint8)">) -> tensor<?x2xf32>
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: pebble.linear %x, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : {{.*}} -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>
  %y_q = pebble.convert %f : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>
  %y = pebble.convert %y_0 : (tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>) -> tensor<?x2xf32>
  %q = pebble.foreign "ai.onnx::QuantizeLinear" at 1 reads %y as ["y"] {pebble.codes = !pebble.codes<s8 scale 0.25 zero 1>} : (tensor<?x2xf32>) -> !pebble.value<"tensor(int8)">
  func.return %q : !pebble.value<"tensor(int8)">
}

// -----

// Steps of codes are rounded to these as they are.
// CHECK-LABEL: @steps
func.func @steps(%x: tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)"> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> activation <relu> {{.*}} -> tensor<?x2x!pebble.codes<u8 scale 1.0 zero 7>>
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> activation <relu> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %q = pebble.foreign "ai.onnx::QuantizeLinear" at 1 reads %y as ["y"] {pebble.codes = !pebble.codes<u8 scale 1.0 zero 7>} : (tensor<?x2xf32>) -> !pebble.value<"tensor(uint8)">
  func.return %q : !pebble.value<"tensor(uint8)">
}
