// RUN: xdsl-opt %s -p canonicalize --split-input-file | filecheck %s

// A bias of zeros goes, and what the layer carries stays.
// CHECK-LABEL: @zero_bias
func.func @zero_bias(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<4x2xf32>
  %b = pebble.constant dense<"0x0000000000000080"> : tensor<2xf32>
  // CHECK: %y = pebble.linear %x, %w activation <relu> kernel <sparse_rows, "why"> io_bounds <reads = 9 to 12, writes = 2 to 4> {pebble.node = "fc1"} : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %x, %w bias %b activation <relu> kernel <sparse_rows, "why"> io_bounds <reads = 9 to 12, writes = 2 to 4> {pebble.node = "fc1"} : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// NaN is not zero.
// CHECK-LABEL: @nan_bias
func.func @nan_bias(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<4x2xf32>
  %b = pebble.constant dense<"0x0000C07F00000000"> : tensor<2xf32>
  // CHECK: %y = pebble.linear %x, %w bias %b
  %y = pebble.linear %x, %w bias %b : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK-LABEL: @neutral
func.func @neutral(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %one = pebble.constant dense<1.0> : tensor<4xf32>
  %zero = pebble.constant dense<0.0> : tensor<f32>
  %a = pebble.mul %one, %x : (tensor<4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = pebble.div %a, %one : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %c = pebble.add %zero, %b : (tensor<f32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = pebble.sub %c, %zero : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32>
  // CHECK-NEXT: func.return %x : tensor<?x4xf32>
  func.return %d : tensor<?x4xf32>
}

// -----

// One over x, and zero minus x, are something else.
// CHECK-LABEL: @not_neutral
func.func @not_neutral(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %one = pebble.constant dense<1.0> : tensor<f32>
  %zero = pebble.constant dense<0.0> : tensor<f32>
  %a = pebble.div %one, %x : (tensor<f32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = pebble.sub %zero, %x : (tensor<f32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK: func.return %a, %b : tensor<?x4xf32>, tensor<?x4xf32>
  func.return %a, %b : tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

// An unknown number of rows may be one, of which a constant of three rows makes three.
// CHECK-LABEL: @widened
func.func @widened(%x: tensor<?x4xf32>, %row: tensor<1x4xf32>) -> (tensor<?x4xf32>, tensor<3x4xf32>) {
  %one = pebble.constant dense<1.0> : tensor<3x4xf32>
  %a = pebble.mul %x, %one : (tensor<?x4xf32>, tensor<3x4xf32>) -> tensor<?x4xf32>
  %b = pebble.mul %row, %one : (tensor<1x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  // CHECK: func.return %a, %b : tensor<?x4xf32>, tensor<3x4xf32>
  func.return %a, %b : tensor<?x4xf32>, tensor<3x4xf32>
}

// -----

// CHECK-LABEL: @repeated
func.func @repeated(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  // CHECK-NEXT: %a = pebble.activate <clip(0.0, 6.0)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %a = pebble.activate <clip(0.0, 6.0)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = pebble.activate <clip(0.0, 6.0)> %a : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK-NEXT: %c = pebble.activate <tanh> %a : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %c = pebble.activate <tanh> %b : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK-NEXT: %d = pebble.activate <tanh> %c : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %d = pebble.activate <tanh> %c : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return %b, %d : tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

// What no result depends on is gone, a whole tile too; inside a tile the patterns apply as well.
// CHECK-LABEL: @tiles
func.func @tiles(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  // CHECK-NEXT: %live = pebble.tile
  // CHECK-NEXT: ^
  // CHECK-NEXT:   %c = pebble.activate <relu> %b : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK-NEXT:   pebble.yield %c : tensor<?x4xf32>
  // CHECK-NEXT: }
  // CHECK-NEXT: func.return %live : tensor<?x4xf32>
  %one = pebble.constant dense<1.0> : tensor<4xf32>
  %dead = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  %live = pebble.tile %x rows_of [0] schedule <widths = [16]> : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%b: tensor<?x4xf32>):
    %c = pebble.activate <relu> %b : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %d = pebble.mul %c, %one : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
    pebble.yield %d : tensor<?x4xf32>
  }
  func.return %live : tensor<?x4xf32>
}

// -----

// What takes the place of a value has its name, if it has none of its own.
// CHECK-LABEL: @names
func.func @names(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  // CHECK-NEXT: pebble.activate <exp> %x {pebble.values = ["y"]} :
  %zero = pebble.constant dense<0.0> : tensor<4xf32>
  %h = pebble.activate <exp> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %y = pebble.add %h, %zero {pebble.values = ["y"]} : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  func.return %y : tensor<?x4xf32>
}

// -----

// Codes that layers were rounded to stay what they are.
// CHECK-LABEL: @rounded_layers
func.func @rounded_layers(%x: tensor<?x4xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<1.0> : tensor<4x2xf32>
  %b = pebble.constant dense<0.0> : tensor<2xf32>
  %y_q = pebble.convert %x : (tensor<?x4xf32>) -> tensor<?x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %y_0 = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "fc1"} : (tensor<?x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero -3>>
  // CHECK: %[[Y:.*]] = pebble.convert %y :
  %y = pebble.convert %y_0 : (tensor<?x2x!pebble.codes<s8 scale 0.25 zero -3>>) -> tensor<?x2xf32>
  %same = pebble.activate <quantize(0.25, 125.0)> %y : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %other = pebble.activate <quantize(0.5, 125.0)> %[[Y]]
  %other = pebble.activate <quantize(0.5, 125.0)> %y : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: func.return %[[Y]], %other
  func.return %same, %other : tensor<?x2xf32>, tensor<?x2xf32>
}
