// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result ?x4, got ?x3
  %y = pebble.activate <relu> %x : (tensor<?x4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %b: tensor<3xf32>) {
  // CHECK: shapes ?x4 and 3 do not broadcast
  %y = pebble.add %x, %b : (tensor<?x4xf32>, tensor<3xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %b: tensor<4xf32>) {
  // CHECK: expected result ?x4, got 4
  %y = pebble.mul %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %slope: tensor<3x1x1xf32>) {
  // CHECK: expected a slope that is broadcast to ?x4, got 3x1x1
  %y = pebble.prelu %x, %slope : (tensor<?x4xf32>, tensor<3x1x1xf32>) -> tensor<3x?x4xf32>
  func.return
}

// -----

func.func @main(%w: tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>) {
  // CHECK: #pebble.sparsity<nonzeros = 2> should be of base attribute none
  %y = pebble.activate <exp> %w : (tensor<4x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<4x2xf32>
  func.return
}
