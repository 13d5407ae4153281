// RUN: xdsl-opt %s --split-input-file | xdsl-opt --split-input-file | filecheck %s

// CHECK: depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 2]> : tensor<2xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 3, 1, 4, 2, 5]> : tensor<6xi64>>]>
func.func @runs(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> depth_first <from 64, [<layers 0 to 1, "why", runs dense<[0, 2]> : tensor<2xi64>, order dense<[2, 4, 3, 5]> : tensor<4xi64>, slots dense<[0, 3, 1, 4, 2, 5]> : tensor<6xi64>>]> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}

// -----

// CHECK: dead_rows <dropped after [0], tiles of 48>
func.func @drops(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>
  %b = pebble.constant dense<[-0.3, 0.5]> : tensor<2xf32>
  %y = pebble.tile %x rows_of [0] schedule <widths = [64]> dead_rows <dropped after [0], tiles of 48> : (tensor<?x2xf32>) -> tensor<?x2xf32> {
  ^bb0(%t: tensor<?x2xf32>):
    %h = pebble.linear %t, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    %z = pebble.linear %h, %w : (tensor<?x2xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 2>>) -> tensor<?x2xf32>
    pebble.yield %z : tensor<?x2xf32>
  }
  func.return %y : tensor<?x2xf32>
}
