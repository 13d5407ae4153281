// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4xf32>) {
  // CHECK: expected weight of rank 2, got 4
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x?xf32>) {
  // CHECK: expected weight with a known size of axis 1, got 4x?
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x?xf32>) -> tensor<?x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<3x2xf32>) {
  // CHECK: expected x ?x3, got ?x4
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>, %b: tensor<1xf32>) {
  // CHECK: expected bias 2, got 1
  %y = pebble.linear %x, %w bias %b : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<1xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected result ?x2, got ?x3
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf64>, %w: tensor<4x2xf32>) {
  // CHECK: Unexpected attribute f64
  %y = pebble.linear %x, %w : (tensor<?x4xf64>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: expected precision bf16 or u8, got 'fp8'
  %y = pebble.linear %x, %w precision "fp8" : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}
