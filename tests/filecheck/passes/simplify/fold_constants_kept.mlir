// RUN: xdsl-opt %s -p pebble-fold-constants --split-input-file | filecheck %s

// One operand that only the call knows keeps the op.
// CHECK-LABEL: @dynamic
func.func @dynamic(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %a = pebble.constant dense<[1.0, 2.0]> : tensor<2xf32>
  // CHECK: pebble.mul %x, %a
  %y = pebble.mul %x, %a : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A foreign node may be random, even without operands.
// CHECK-LABEL: @foreign
func.func @foreign() -> tensor<2xf32> {
  // CHECK: pebble.foreign "RandomNormal" at 0
  %y = pebble.foreign "RandomNormal" at 0 as [] : () -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}

// -----

// A constant has a known shape, and the users of this result rely on an unknown one.
// CHECK-LABEL: @unknown
func.func @unknown() -> tensor<?xf32> {
  %a = pebble.constant dense<[1.0, 2.0]> : tensor<2xf32>
  // CHECK: pebble.add
  %y = pebble.add %a, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<?xf32>
  func.return %y : tensor<?xf32>
}
