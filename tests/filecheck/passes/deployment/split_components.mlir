// RUN: xdsl-opt %s -p 'pebble-split-components{least_gain=0.0}' --split-input-file | filecheck %s

// Inputs 0 and 2 are not connected with 1 and 3, through both layers; the output stands in its old order.
// CHECK-LABEL: @hidden
func.func @hidden(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  // CHECK: %w = pebble.constant {pebble.values = ["W"]} dense<{{\[\[\[}}2.000000e+00], [4.000000e+00]], {{\[\[}}1.000000e+00], [3.000000e+00]]]> : tensor<2x2x1xf32>
  // CHECK: %b = pebble.constant dense<[6.000000e+00, 5.000000e+00]> : tensor<2xf32>
  // CHECK: %v = pebble.constant dense<{{\[\[\[}}7.000000e+00]], {{\[\[}}8.000000e+00]]]> : tensor<2x1x1xf32>
  // CHECK: pebble.constant dense<0.000000e+00> : tensor<2xf32>
  // CHECK: %y = pebble.grouped_layers %x, %w, %b, %v, {{%.*}} activations [#pebble.activation<relu>, unit]
  // CHECK-SAME: orders [dense<[0, 2, 1, 3]> : tensor<4xi64>, dense<> : tensor<0xi64>, dense<[1, 0]> : tensor<2xi64>]
  // CHECK-SAME: nodes ["fc1", "fc2"] because "4-2-2 as 2 groups of 2-1-1; predicted
  // CHECK-SAME: {pebble.node = "fc1", pebble.values = ["y"]}
  // CHECK-NEXT: func.return %y
  %w = pebble.constant {pebble.values = ["W"]} dense<[[0.0, 2.0], [1.0, 0.0], [0.0, 4.0], [3.0, 0.0]]> : tensor<4x2xf32>
  %b = pebble.constant dense<[5.0, 6.0]> : tensor<2xf32>
  %v = pebble.constant dense<[[8.0, 0.0], [0.0, 7.0]]> : tensor<2x2xf32>
  %h = pebble.linear %x, %w bias %b activation <relu> {pebble.node = "fc1"} : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %y = pebble.linear %h, %v {pebble.node = "fc2", pebble.values = ["y"]} : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Input 1 is read by nothing; the smaller group reads an input of its own twice, with a weight of zero.
// CHECK-LABEL: @padded
func.func @padded(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  // CHECK: %w = pebble.constant dense<{{\[\[\[}}1.000000e+00], [2.000000e+00]], {{\[\[}}3.000000e+00], [0.000000e+00]]]> : tensor<2x2x1xf32>
  // CHECK: orders [dense<[0, 2, 3, 3]> : tensor<4xi64>, dense<> : tensor<0xi64>]
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 3.0]]> : tensor<4x2xf32>
  %y = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// What nothing connects stays connected by nothing: with other parts in the next layer, values change places between.
// CHECK-LABEL: @crossing
func.func @crossing(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  // CHECK: orders [dense<> : tensor<0xi64>, dense<[0, 2, 1, 3]> : tensor<4xi64>, dense<[0, 2, 1, 3]> : tensor<4xi64>]
  %w = pebble.constant dense<[[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 3.0, 4.0]]> : tensor<4x4xf32>
  %v = pebble.constant dense<[[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 4.0, 0.0], [0.0, 3.0, 0.0, 4.0]]> : tensor<4x4xf32>
  %h = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %y = pebble.linear %h, %v : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  func.return %y : tensor<?x4xf32>
}
