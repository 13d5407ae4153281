// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected a multiplier `times` of sums of codes alone
  %y = pebble.linear %x, %w bias %b : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected a multiplier `times` of sums of codes alone
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  %n = pebble.constant dense<1.0> : tensor<3xf32>
  // CHECK: expected times 2, got 3
  %y = pebble.linear %x, %w bias %b times %n : tensor<3xf32> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 256.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: weights are no integers from -255 to 255
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 0.5], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: weights are no integers from -255 to 255
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 16777218.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: biases are no integers from -16777216 to 16777216
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, %w: tensor<3x2xf32>, %b: tensor<2xf32>) {
  // CHECK: weights are no constant
  %y = pebble.linear %x, %w bias %b times %b : tensor<2xf32> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected floats to round to u8, got codes
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> precision "u8" : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected a result of floats for an input of floats, got codes
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> precision "u8" : (tensor<?x3xf32>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]> : tensor<3x2xf32>
  %b = pebble.constant dense<[0.0, 0.0]> : tensor<2xf32>
  %m = pebble.constant dense<[1.0, 1.0]> : tensor<2xf32>
  // CHECK: expected codes of a scale and a zero, got dynamic ones
  %y = pebble.linear %x, %w bias %b times %m : tensor<2xf32> : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<dynamic>>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  // CHECK: expected codes u8, s8 or dynamic, got i4
  %y = pebble.convert %x : (tensor<?x3xf32>) -> tensor<?x3x!pebble.codes<i4 scale 0.5 zero 1>>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  // CHECK: expected codes on one side
  %y = pebble.convert %x : (tensor<?x3xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  // CHECK: expected codes of a scale and a zero on one side, floats on the other
  %y = pebble.convert %x : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) -> tensor<?x3x!pebble.codes<s8 scale 0.5 zero 0>>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) {
  // CHECK: expected result ?x3, got ?x2
  %y = pebble.convert %x : (tensor<?x3x!pebble.codes<u8 scale 0.5 zero 128>>) -> tensor<?x2xf32>
  func.return
}
