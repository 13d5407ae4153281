// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x3x4xf32>, %y: tensor<3x4xf32>) {
  // CHECK: expected y of rank 3, got 3x4
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<?x3x4xf32>, tensor<3x4xf32>) -> tensor<?x3x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x?xf32>) {
  // CHECK: expected x with a known size of axis 2, got ?x3x?
  %z = pebble.batch_matmul_transpose_b %x, %x : (tensor<?x3x?xf32>, tensor<?x3x?xf32>) -> tensor<?x3x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<5x3x4xf32>) {
  // CHECK: expected y 2x3x4, got 5x3x4
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<2x3x4xf32>, tensor<5x3x4xf32>) -> tensor<2x3x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<2x5x4xf32>) {
  // CHECK: expected result 2x3x5, got 2x3x3
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<2x3x3xf32>
  func.return
}
