// RUN: xdsl-opt %s -p pebble-recognize-layers --split-input-file | filecheck %s

// The gate is read elsewhere, too.
// CHECK-LABEL: @gate_read_twice
func.func @gate_read_twice(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  // CHECK: pebble.activate <sigmoid> %x
  %a = pebble.activate <sigmoid> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: pebble.mul %x, %a
  %y = pebble.mul %x, %a : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %a, %y : tensor<?x2xf32>, tensor<?x2xf32>
}

// -----

// A gate of another value.
// CHECK-LABEL: @other_value
func.func @other_value(%x: tensor<?x2xf32>, %z: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %a = pebble.activate <sigmoid> %z : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: pebble.mul %x, %a
  %y = pebble.mul %x, %a : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// 1.41 is not the square root of 2.
// CHECK-LABEL: @coarse_constant
func.func @coarse_constant(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %root = pebble.constant dense<1.41> : tensor<f32>
  %one = pebble.constant dense<1.0> : tensor<f32>
  %half = pebble.constant dense<0.5> : tensor<f32>
  %a = pebble.div %x, %root : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  // CHECK: pebble.activate <erf>
  %b = pebble.activate <erf> %a : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %c = pebble.add %b, %one : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  %d = pebble.mul %x, %c : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.mul
  %y = pebble.mul %d, %half : (tensor<?x2xf32>, tensor<f32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// The squares are of another value than the one that is divided.
// CHECK-LABEL: @other_squares
func.func @other_squares(%x: tensor<?x2xf32>, %z: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %s = pebble.activate <square> %z : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %v = pebble.reduce_mean %s : (tensor<?x2xf32>) -> tensor<?x1xf32>
  %r = pebble.activate <sqrt> %v : (tensor<?x1xf32>) -> tensor<?x1xf32>
  // CHECK: %y = pebble.div %x, %r
  %y = pebble.div %x, %r : (tensor<?x2xf32>, tensor<?x1xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Two numbers for all channels are the gate of an activation, rather; a value that is read twice stays.
// CHECK-LABEL: @numbers
func.func @numbers(%x: tensor<?x2x4x4xf32>) -> (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) {
  %three = pebble.constant dense<3.0> : tensor<f32>
  %c = pebble.constant dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>
  // CHECK-NOT: batch_norm
  %a = pebble.div %x, %three : (tensor<?x2x4x4xf32>, tensor<f32>) -> tensor<?x2x4x4xf32>
  %b = pebble.add %a, %three : (tensor<?x2x4x4xf32>, tensor<f32>) -> tensor<?x2x4x4xf32>
  %d = pebble.activate <relu> %b : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %e = pebble.mul %d, %c : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  %f = pebble.add %e, %c : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  func.return %e, %f : tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>
}
