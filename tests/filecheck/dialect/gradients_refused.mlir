// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x4xf32>, %w: tensor<2x3xf32>) {
  // CHECK: y ?x4, expected ?x3
  %g = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x4xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<5x2xf32>, %y: tensor<4x3xf32>, %w: tensor<2x3xf32>) {
  // CHECK: x 5x2 and y 4x3 have different rows
  %g = pebble.sampled_product %x, %y, %w : (tensor<5x2xf32>, tensor<4x3xf32>, tensor<2x3xf32>) -> tensor<6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x3xf32>, %w: tensor<2x3xf32>) {
  // CHECK: result 5, expected 6
  %g = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<5xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>, %y: tensor<?x3xf32>, %w: tensor<6xf32>) {
  // CHECK: weight 6, expected rank 2 and known sizes
  %g = pebble.sampled_product %x, %y, %w : (tensor<?x2xf32>, tensor<?x3xf32>, tensor<6xf32>) -> tensor<6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2x?xf32>) {
  // CHECK: x ?x2x?, expected rank 2 or more and a known last axis
  %g = pebble.sum_rows %x : (tensor<?x2x?xf32>) -> tensor<?x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x3xf32>) {
  // CHECK: result 4, expected 3
  %g = pebble.sum_rows %x : (tensor<?x3xf32>) -> tensor<4xf32>
  func.return
}
