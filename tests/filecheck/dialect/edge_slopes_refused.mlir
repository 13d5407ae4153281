// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%s: tensor<3x3xf32>, %a: tensor<3x3xf32>) {
  // CHECK: expected 4 scores of each node, got 3
  %l = pebble.edge_totals %s, %a heads 2 : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x2xf32>
  func.return
}

// -----

func.func @main(%s: tensor<3x4xf32>, %a: tensor<3x3xf32>) {
  // CHECK: expected result 3x2, got 3x4
  %l = pebble.edge_totals %s, %a heads 2 : (tensor<3x4xf32>, tensor<3x3xf32>) -> tensor<3x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3x4xf32>, %s: tensor<3x4xf32>, %l: tensor<3x2xf32>, %a: tensor<3x3xf32>) {
  // CHECK: expected totals 3x4, got 3x2
  %y = pebble.edge_slopes %x, %s, %l, %a sources heads 2 : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x3xf32>) -> tensor<3x10xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3x5xf32>, %s: tensor<3x4xf32>, %l: tensor<3x2xf32>, %a: tensor<3x3xf32>) {
  // CHECK: expected a divisor of 5 features, got 2 heads
  %y = pebble.edge_slopes %x, %s, %l, %a heads 2 : (tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x3xf32>) -> tensor<3x12xf32>
  func.return
}
