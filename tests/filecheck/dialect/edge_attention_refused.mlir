// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x3xf32>) {
  // CHECK: graph 2x3, expected as many sources as targets
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<3x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>) {
  // CHECK: input 3x6, expected 2 nodes and a known last axis
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<3x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<3x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x8xf32>, %a: tensor<2x2xf32>) {
  // CHECK: 4 heads of 6 features, expected a divisor
  %y = pebble.attend_edges %x, %s, %a heads 4 : (tensor<2x6xf32>, tensor<2x8xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x2xf32>, %a: tensor<2x2xf32>) {
  // CHECK: scores 2x2, expected 2x4
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>) {
  // CHECK: epsilon -1.0, expected 0 or more
  %y = pebble.attend_edges %x, %s, %a heads 2 epsilon -1.0 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>, %b: tensor<4xf32>) {
  // CHECK: bias 4, expected 6
  %y = pebble.attend_edges %x, %s, %a bias %b heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>, tensor<4xf32>) -> tensor<2x6xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x6xf32>, %s: tensor<2x4xf32>, %a: tensor<2x2xf32>) {
  // CHECK: result 2x4, expected 2x6
  %y = pebble.attend_edges %x, %s, %a heads 2 : (tensor<2x6xf32>, tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<2x4xf32>
  func.return
}
