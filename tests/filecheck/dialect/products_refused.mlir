// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x3x4xf32>, %y: tensor<3x4xf32>) {
  // CHECK: operands ?x3x4 and 3x4, expected one rank, 2 or more
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<?x3x4xf32>, tensor<3x4xf32>) -> tensor<?x3x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3x?xf32>) {
  // CHECK: operands ?x3x? and ?x3x?, expected last axes of one known size
  %z = pebble.batch_matmul_transpose_b %x, %x : (tensor<?x3x?xf32>, tensor<?x3x?xf32>) -> tensor<?x3x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<5x3x4xf32>) {
  // CHECK: operands 2x3x4 and 5x3x4, expected the same leading axes
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<2x3x4xf32>, tensor<5x3x4xf32>) -> tensor<2x3x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<2x5x4xf32>) {
  // CHECK: result 2x3x3, expected 2x3x5
  %z = pebble.batch_matmul_transpose_b %x, %y : (tensor<2x3x4xf32>, tensor<2x5x4xf32>) -> tensor<2x3x3xf32>
  func.return
}
