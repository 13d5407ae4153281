// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x?xf32>) {
  // CHECK: expected graph with a known size of axis 1, got 2x?
  %y = pebble.aggregate %x, %a : (tensor<2x2xf32>, tensor<2x?xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3x2xf32>, %a: tensor<2x4xf32>) {
  // CHECK: expected graph 3x4, got 2x4
  %y = pebble.aggregate %x, %a : (tensor<3x2xf32>, tensor<2x4xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x4xf32>, %b: tensor<4xf32>) {
  // CHECK: expected bias 2, got 4
  %y = pebble.aggregate %x, %a bias %b : (tensor<2x2xf32>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<4x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x4xf32>) {
  // CHECK: expected result 4x2, got 2x2
  %y = pebble.aggregate %x, %a : (tensor<2x2xf32>, tensor<2x4xf32>) -> tensor<2x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x2xf32>) {
  // CHECK: expected graph or weights first, got nodes
  %y = pebble.aggregate %x, %a order <nodes first, us = 1.0, otherwise = 2.0> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x2xf32>, %a: tensor<2x2xf32>) {
  // CHECK: a predicted time is negative
  %y = pebble.aggregate %x, %a order <graph first, us = -1.0, otherwise = 2.0> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return
}
