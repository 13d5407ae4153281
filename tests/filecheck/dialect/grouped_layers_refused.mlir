// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>) {
  // CHECK: 1 parameters, expected two for each of 1 nodes
  %y = pebble.grouped_layers %x, %p0 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: 1 orders, expected 2
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: input 4, expected rank 2 or more and a known last axis
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2xf32>, %p1: tensor<2xf32>) {
  // CHECK: weight 2x2, expected outputs by inputs of a group by 1
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
  // CHECK: bias 3, expected 2
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<3xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: order before layer takes value 4, expected 0 to 3
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<[0, 4, 1, 2]> : tensor<4xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: order before result takes value -1, expected 0 to 1
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<[-1, 0]> : tensor<2xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %p0: tensor<2x2x1xf32>, %p1: tensor<2xf32>) {
  // CHECK: result ?x3, expected ?x2
  %y = pebble.grouped_layers %x, %p0, %p1 activations [unit] orders [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>] nodes ["fc"] because "" : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x3xf32>
  func.return
}
