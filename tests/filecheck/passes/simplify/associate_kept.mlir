// RUN: xdsl-opt %s -p pebble-associate | filecheck %s

// a bias between the two products, a maximum, and a value with another reader stay where they are
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<2x1xf32>, %b: tensor<64xf32>) -> (tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>) {
  %a = pebble.sparse_constant pointers dense<[0, 2, 4]> : tensor<3xi64> rows dense<[0, 1, 0, 1]> : tensor<4xi64> values dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>
  %w = pebble.constant dense<1.0> : tensor<1x64xf32>
  // CHECK: %h = pebble.linear %x, %w bias %b :
  // CHECK-NEXT: %y = pebble.aggregate %h, %a :
  %h = pebble.linear %x, %w bias %b : (tensor<2x1xf32>, tensor<1x64xf32>, tensor<64xf32>) -> tensor<2x64xf32>
  %y = pebble.aggregate %h, %a : (tensor<2x64xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>) -> tensor<2x64xf32>
  // CHECK-NEXT: %i = pebble.linear %x, %w :
  // CHECK-NEXT: %m = pebble.aggregate %i, %a maximum :
  %i = pebble.linear %x, %w : (tensor<2x1xf32>, tensor<1x64xf32>) -> tensor<2x64xf32>
  %m = pebble.aggregate %i, %a maximum : (tensor<2x64xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>) -> tensor<2x64xf32>
  // CHECK-NEXT: %k = pebble.linear %x, %w :
  // CHECK-NEXT: %z = pebble.aggregate %k, %a :
  %k = pebble.linear %x, %w : (tensor<2x1xf32>, tensor<1x64xf32>) -> tensor<2x64xf32>
  %z = pebble.aggregate %k, %a : (tensor<2x64xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>) -> tensor<2x64xf32>
  func.return %y, %m, %z, %k : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>, tensor<2x64xf32>
}

// what goes through few values, and an activation between two layers, stay
// CHECK-LABEL: func.func @layers_in_a_row
func.func @layers_in_a_row(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %w = pebble.constant dense<2.0> : tensor<64x4xf32>
  %v = pebble.constant dense<0.5> : tensor<4x64xf32>
  // CHECK: %h = pebble.linear %x, %w :
  // CHECK-NEXT: %y = pebble.linear %h, %v :
  %h = pebble.linear %x, %w : (tensor<64x64xf32>, tensor<64x4xf32>) -> tensor<64x4xf32>
  %y = pebble.linear %h, %v : (tensor<64x4xf32>, tensor<4x64xf32>) -> tensor<64x64xf32>
  %u = pebble.constant dense<0.5> : tensor<64x64xf32>
  // CHECK: %k = pebble.linear %x, %u activation <relu> :
  // CHECK-NEXT: %z = pebble.linear %k, %u :
  %k = pebble.linear %x, %u activation <relu> : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %z = pebble.linear %k, %u : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  func.return %y, %z : tensor<64x64xf32>, tensor<64x64xf32>
}

// a product of weights that overflows or underflows, and a bias that overflows behind the second weight
// CHECK-LABEL: func.func @products_that_floats_do_not_hold
func.func @products_that_floats_do_not_hold(%x: tensor<64x16xf32>) -> (tensor<64x16xf32>, tensor<64x16xf32>, tensor<64x16xf32>) {
  %large = pebble.constant dense<1.0e20> : tensor<16x256xf32>
  %larger = pebble.constant dense<1.0e20> : tensor<256x16xf32>
  // CHECK: %h = pebble.linear %x, %large :
  // CHECK-NEXT: %y = pebble.linear %h, %larger :
  %h = pebble.linear %x, %large : (tensor<64x16xf32>, tensor<16x256xf32>) -> tensor<64x256xf32>
  %y = pebble.linear %h, %larger : (tensor<64x256xf32>, tensor<256x16xf32>) -> tensor<64x16xf32>
  %small = pebble.constant dense<1.0e-25> : tensor<16x256xf32>
  %smaller = pebble.constant dense<1.0e-25> : tensor<256x16xf32>
  // CHECK: %i = pebble.linear %x, %small :
  // CHECK-NEXT: %z = pebble.linear %i, %smaller :
  %i = pebble.linear %x, %small : (tensor<64x16xf32>, tensor<16x256xf32>) -> tensor<64x256xf32>
  %z = pebble.linear %i, %smaller : (tensor<64x256xf32>, tensor<256x16xf32>) -> tensor<64x16xf32>
  %u = pebble.constant dense<-1.0> : tensor<16x256xf32>
  %b = pebble.constant dense<1.0e20> : tensor<256xf32>
  // CHECK: %j = pebble.linear %x, %u bias %b :
  // CHECK-NEXT: %v = pebble.linear %j, %larger :
  %j = pebble.linear %x, %u bias %b : (tensor<64x16xf32>, tensor<16x256xf32>, tensor<256xf32>) -> tensor<64x256xf32>
  %v = pebble.linear %j, %larger : (tensor<64x256xf32>, tensor<256x16xf32>) -> tensor<64x16xf32>
  func.return %y, %z, %v : tensor<64x16xf32>, tensor<64x16xf32>, tensor<64x16xf32>
}
