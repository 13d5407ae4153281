// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<2x2xf32>, %samples: tensor<?x2x4xf32>, %b: tensor<2xf32>) {
  %a = pebble.sparse_constant pointers dense<[0, 2, 2, 3]> : tensor<4xi64> rows dense<[0, 1, 1]> : tensor<3xi64> values dense<[1.0, 2.0, 3.0]> : tensor<3xf32> : tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>
  %sums = pebble.aggregate %x, %a bias %b activation <relu> order <weights first, us = 1.5, otherwise = 20.0> : (tensor<2x2xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>, tensor<2xf32>) -> tensor<3x2xf32>
  %maxima = pebble.aggregate %samples, %a maximum : (tensor<?x2x4xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<?x3x4xf32>
  func.return
}

// CHECK:      %sums = pebble.aggregate %x, %a bias %b activation <relu> order <weights first, us = 1.500000e+00, otherwise = 2.000000e+01> : (tensor<2x2xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>, tensor<2xf32>) -> tensor<3x2xf32>
// CHECK-NEXT: %maxima = pebble.aggregate %samples, %a maximum : (tensor<?x2x4xf32>, tensor<2x3xf32, #pebble.sparsity<nonzeros = 3>>) -> tensor<?x3x4xf32>

// GENERIC: %maxima = "pebble.aggregate"(%samples, %a) <{maximum}>
