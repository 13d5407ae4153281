// RUN: xdsl-opt %s | xdsl-opt | filecheck %s

// CHECK-LABEL: @main
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[[1.0], [2.0]], [[3.0], [4.0]]]> : tensor<2x2x1xf32>
  %b = pebble.constant dense<[5.0, 6.0]> : tensor<2xf32>
  // CHECK: %y = pebble.grouped_layers %x, %w, %b activations [#pebble.activation<relu>]
  // CHECK-SAME: orders [dense<[0, 2, 1, 3]> : tensor<4xi64>, dense<> : tensor<0xi64>] nodes ["fc1"] because "2 groups"
  // CHECK-SAME: {pebble.node = "fc1"} : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %y = pebble.grouped_layers %x, %w, %b activations [#pebble.activation<relu>] orders [dense<[0, 2, 1, 3]> : tensor<4xi64>, dense<> : tensor<0xi64>] nodes ["fc1"] because "2 groups" {pebble.node = "fc1"} : (tensor<?x4xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
