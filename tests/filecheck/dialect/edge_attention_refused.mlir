// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x3xf32>) {
  // CHECK: expected graph 2x2, got 2x3
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>) {
  // CHECK: expected scores 3x4, got 2x4
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<3x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<3x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x8xf32>, %a: tensor<2x2xf32>) {
  // CHECK: expected a divisor of 6 features, got 4 heads
  %y = pebble.attend_edges %x, %s, %a heads 4 : (tensor<2x6xf32>, tensor<2x8xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x2xf32>, %a: tensor<2x2xf32>) {
  // CHECK: expected 4 scores of each node, got 2
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>) {
  // CHECK: expected an epsilon of 0 or more, got -1.0
  %y = pebble.attend_edges %x, %s, %a heads 2 epsilon -1.0 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>, %b: tensor<4xf32>) {
  // CHECK: expected bias 6, got 4
  %y = pebble.attend_edges %x, %s, %a bias %b heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>, tensor<4xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>) {
  // CHECK: expected result 2x6, got 2x4
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<2x4xf32>
  func.return
}
