// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>) {
  // CHECK: expected two parameters for each of 1 nodes, got 1
  %y = pebble.grouped_layers %x, %p0 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: expected 2 orders, got 1
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: expected x of rank 2 or more with a known last axis, got 4
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2xf32>, %p1: tensor<2xf32>) {
  // CHECK: expected a weight of outputs by inputs of a group by 1, got 2x2
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<3x2x1xf32>, %p1: tensor<3xf32>) {
  // CHECK: weight 3x2x1 does not part 4 inputs into groups
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<3x2x1xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<3xf32>) {
  // CHECK: expected bias 2, got 3
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<3xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: expected values 0 to 3 in the order before layer, got 4
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<[0, 4, 1, 2]> : tensor<4xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: expected values 0 to 1 in the order before result, got -1
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<[-1, 0]> : tensor<2xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: expected result ?x2, got ?x3
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x3xf32>
  func.return
}
