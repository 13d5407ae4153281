// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x4xf32>, %w: tensor<2x3xf32>) {
  // CHECK: expected weight 2x4, got 2x3
  %g = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x4xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<5x2xf32>, %y: tensor<4x3xf32>, %w: tensor<2x3xf32>) {
  // CHECK: expected y 5x3, got 4x3
  %g = pebble.sampled_product %x, %y, %w : (tensor<5x2xf32>, tensor<4x3xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x3xf32>, %w: tensor<2x3xf32>) {
  // CHECK: expected result 6, got 5
  %g = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<5xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x3xf32>, %w: tensor<6xf32>) {
  // CHECK: expected weight of rank 2, got 6
  %g = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<6xf32>) -> tensor<6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2x?xf32>) {
  // CHECK: expected x with a known size of axis 2, got ?x2x?
  %g = pebble.sum_rows %x : (tensor<?x2x?xf32>) -> tensor<?x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  // CHECK: expected result 3, got 4
  %g = pebble.sum_rows %x : (tensor<?x3xf32>) -> tensor<4xf32>
  func.return
}
