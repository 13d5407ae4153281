// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4xf32>) {
  // CHECK: weight of rank 1, expected 2
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x?xf32>) {
  // CHECK: weight 4x?, expected known sizes
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x?xf32>) -> tensor<?x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<3x2xf32>) {
  // CHECK: input ?x4 does not fit weight 3x2
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>, %b: tensor<1xf32>) {
  // CHECK: bias 1, expected 2
  %y = pebble.linear %x, %w bias %b : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<1xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: result ?x3, expected ?x2
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf64>, %w: tensor<4x2xf32>) {
  // CHECK: f64 should be of base attribute f32
  %y = pebble.linear %x, %w : (tensor<?x4xf64>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) {
  // CHECK: precision 'fp8', accepted is bf16
  %y = pebble.linear %x, %w precision "fp8" : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return
}
