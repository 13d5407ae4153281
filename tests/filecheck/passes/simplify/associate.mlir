// RUN: xdsl-opt %s -p pebble-associate | filecheck %s

// CHECK-LABEL: func.func @wider
func.func @wider(%x: tensor<2x1xf32>, %b: tensor<64xf32>) -> tensor<2x64xf32> {
  %a = pebble.sparse_constant pointers dense<[0, 2, 4]> : tensor<3xi64> rows dense<[0, 1, 0, 1]> : tensor<4xi64> values dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>
  %w = pebble.constant dense<1.0> : tensor<1x64xf32>
  // CHECK: [[H:%.*]] = pebble.aggregate %x, %a order <graph first, us = {{.*}}, otherwise = {{.*}}> :
  // CHECK-NEXT: %y = pebble.linear [[H]], %w bias %b activation <relu> :
  %h = pebble.linear %x, %w : (tensor<2x1xf32>, tensor<1x64xf32>) -> tensor<2x64xf32>
  %y = pebble.aggregate %h, %a bias %b activation <relu> : (tensor<2x64xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>, tensor<64xf32>) -> tensor<2x64xf32>
  func.return %y : tensor<2x64xf32>
}

// CHECK-LABEL: func.func @narrower
func.func @narrower(%x: tensor<2x64xf32>, %b: tensor<1xf32>) -> tensor<2x1xf32> {
  %a = pebble.sparse_constant pointers dense<[0, 2, 4]> : tensor<3xi64> rows dense<[0, 1, 0, 1]> : tensor<4xi64> values dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>
  %w = pebble.constant dense<1.0> : tensor<64x1xf32>
  // CHECK: [[H:%.*]] = pebble.linear %x, %w :
  // CHECK-NEXT: %y = pebble.aggregate [[H]], %a bias %b activation <relu> order <weights first, us = {{.*}}, otherwise = {{.*}}> :
  %h = pebble.aggregate %x, %a : (tensor<2x64xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>) -> tensor<2x64xf32>
  %y = pebble.linear %h, %w bias %b activation <relu> : (tensor<2x64xf32>, tensor<64x1xf32>, tensor<1xf32>) -> tensor<2x1xf32>
  func.return %y : tensor<2x1xf32>
}

// CHECK-LABEL: func.func @layers_in_a_row
func.func @layers_in_a_row(%x: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %w = pebble.constant dense<2.0> : tensor<16x256xf32>
  %v = pebble.constant dense<0.5> : tensor<256x16xf32>
  %d = pebble.constant dense<1.0> : tensor<256xf32>
  // CHECK: [[W:%.*]] = pebble.constant dense<2.560000e+02> : tensor<16x16xf32>
  // CHECK-NEXT: [[B:%.*]] = pebble.constant dense<1.280000e+02> : tensor<16xf32>
  // CHECK-NEXT: %y = pebble.linear %x, [[W]] bias [[B]] activation <relu> :
  %h = pebble.linear %x, %w bias %d : (tensor<64x16xf32>, tensor<16x256xf32>, tensor<256xf32>) -> tensor<64x256xf32>
  %y = pebble.linear %h, %v activation <relu> : (tensor<64x256xf32>, tensor<256x16xf32>) -> tensor<64x16xf32>
  func.return %y : tensor<64x16xf32>
}

// numbers that underflowed already in a weight keep nothing from being multiplied
// CHECK-LABEL: func.func @denormal_weights_in_a_row
func.func @denormal_weights_in_a_row(%x: tensor<64x16xf32>) -> tensor<64x16xf32> {
  %w = pebble.constant dense<1.0e-41> : tensor<16x256xf32>
  %v = pebble.constant dense<0.5> : tensor<256x16xf32>
  // CHECK: [[W:%.*]] = pebble.constant dense<1.{{.*}}e-39> : tensor<16x16xf32>
  // CHECK-NEXT: %y = pebble.linear %x, [[W]] :
  %h = pebble.linear %x, %w : (tensor<64x16xf32>, tensor<16x256xf32>) -> tensor<64x256xf32>
  %y = pebble.linear %h, %v : (tensor<64x256xf32>, tensor<256x16xf32>) -> tensor<64x16xf32>
  func.return %y : tensor<64x16xf32>
}

// CHECK-LABEL: func.func @edges_of_a_call
func.func @edges_of_a_call(%x: tensor<?x64xf32>, %i: !pebble.value<"tensor(int64)">, %j: !pebble.value<"tensor(int64)">, %b: tensor<2xf32>) -> tensor<?x2xf32> {
  %s, %t, %v = pebble.edge_list of %x from %i to %j {pebble.dims = [["e"], ["e"], ["e"]]} : (tensor<?x64xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
  %e = pebble.sort_edges of %x, %s, %t, %v : (tensor<?x64xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> !pebble.edges
  %w = pebble.constant dense<1.0> : tensor<64x2xf32>
  // CHECK: [[H:%.*]] = pebble.linear %x, %w :
  // CHECK-NEXT: %y = pebble.aggregate [[H]], %e bias %b activation <relu> order <weights first, us = {{.*}}, otherwise = {{.*}}> :
  %h = pebble.aggregate %x, %e : (tensor<?x64xf32>, !pebble.edges) -> tensor<?x64xf32>
  %y = pebble.linear %h, %w bias %b activation <relu> : (tensor<?x64xf32>, tensor<64x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// widths that are equal: the graph gathers behind the weights, whose results are still in a cache
// CHECK-LABEL: func.func @as_wide
func.func @as_wide(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %a = pebble.sparse_constant pointers dense<[0, 2, 4]> : tensor<3xi64> rows dense<[0, 1, 0, 1]> : tensor<4xi64> values dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32> : tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>
  %w = pebble.constant dense<1.0> : tensor<4x4xf32>
  // CHECK: [[H:%.*]] = pebble.linear %x, %w :
  // CHECK-NEXT: %y = pebble.aggregate [[H]], %a order <weights first, us = {{.*}}, otherwise = {{.*}}> :
  %h = pebble.aggregate %x, %a : (tensor<2x4xf32>, tensor<2x2xf32, #pebble.sparsity<nonzeros = 4>>) -> tensor<2x4xf32>
  %y = pebble.linear %h, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}
