// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x?xf32>) {
  // CHECK: graph 2x?, expected rank 2 and known sizes
  %y = pebble.aggregate %x, %a : (tensor<2x2xf32>, tensor<2x?xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3x2xf32>, %a: tensor<2x4xf32>) {
  // CHECK: input 3x2, expected 2 nodes and a known last axis
  %y = pebble.aggregate %x, %a : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x4xf32>, %b: tensor<4xf32>) {
  // CHECK: bias 4, expected 2
  %y = pebble.aggregate %x, %a bias %b : (tensor<2x2xf32>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x4xf32>) {
  // CHECK: result 2x2, expected 4x2
  %y = pebble.aggregate %x, %a : (tensor<2x2xf32>, tensor<2x4xf32>) -> tensor<2x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x2xf32>) {
  // CHECK: nodes first, accepted are graph and weights
  %y = pebble.aggregate %x, %a order <nodes first, us = 1.0, otherwise = 2.0> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x2xf32>) {
  // CHECK: a predicted time is negative
  %y = pebble.aggregate %x, %a order <graph first, us = -1.0, otherwise = 2.0> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return
}
